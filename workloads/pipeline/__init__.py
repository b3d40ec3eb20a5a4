"""Pipeline schedules: the order of passes, and the time line they make."""

import workloads.pipeline.schedules  # noqa: F401 - makes those that come with the project known
