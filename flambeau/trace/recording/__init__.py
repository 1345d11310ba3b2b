"""How instructions come into a trace."""
