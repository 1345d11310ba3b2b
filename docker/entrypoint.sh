#!/bin/sh
# Before the program: is this machine what it counts on? If not, the job ends here, with the reason in its log.
# FLAMBEAU_EXPECT_DEVICE says what is expected ("cuda", "cuda:0,cuda:1", "cpu"); empty, nothing is, and the doctor only
# reports. FLAMBEAU_DOCTOR_OPTIONS are further options of `flambeau doctor`, such as --quick.
# What the doctor says goes to stderr: stdout is the program's.
set -eu
# shellcheck disable=SC2086
flambeau doctor ${FLAMBEAU_EXPECT_DEVICE:+--expect "$FLAMBEAU_EXPECT_DEVICE"} ${FLAMBEAU_DOCTOR_OPTIONS:-} >&2
exec "$@"
