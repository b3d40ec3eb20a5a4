"""Studies of networks, ``heliograph network``.

`links` has loads of links and the spreading of packets, `breakeven` where circuits that move pay,
`circuits` their schedules, `schedule` time lines of pipelines, `flows` traffic of one's own and traces.
"""
