"""Studies of networks: loads of links, break-even of circuits, their schedules, pipelines and traces."""
