"""Pipeline schedules.

`schedule` says what one must state, and the time line that it makes; `schedules` has those that ship.
"""

import workloads.pipeline.schedules  # noqa: F401 - makes those that come with the project known
