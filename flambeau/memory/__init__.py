"""Memory by line, by module and by role: who holds it now, how it came to its peak, what more samples would need."""
