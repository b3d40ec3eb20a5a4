"""Pages of studies: what ``--report`` writes, one file a study; `frame` has what all of them share."""
