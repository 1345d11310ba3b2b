"""PostgreSQL's numbers of types, which do not change, and what kinds they are: (kind, bits)."""

KIND_OF_OID = {16: ("bool", 8), 20: ("int", 64), 21: ("int", 16), 23: ("int", 32), 26: ("int", 64), 700: ("float", 32),
               701: ("float", 64), 1700: ("decimal", 64), 25: ("text", 64), 1043: ("text", 64), 1042: ("text", 64),
               18: ("text", 64), 19: ("text", 64), 2950: ("text", 64), 1082: ("date", 32), 1114: ("timestamp", 64),
               1184: ("timestamp", 64), 705: ("unknown", 64)}
