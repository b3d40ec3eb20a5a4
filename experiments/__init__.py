"""Named systems, the command line, records and figures."""
