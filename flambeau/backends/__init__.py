"""What a device can do: run operations on arrays, hold memory, draw random numbers."""
