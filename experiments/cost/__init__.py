"""Studies of cost: bills of materials, goodput under failures, stranded accelerators, jobs that share."""
