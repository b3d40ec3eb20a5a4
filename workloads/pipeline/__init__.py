"""Pipeline schedules: the order of passes, and the time line they make."""
