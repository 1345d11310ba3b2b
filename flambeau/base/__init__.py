"""What everything stands on: dtypes, shapes, specs, sites and errors, settings, the form of an operation."""
