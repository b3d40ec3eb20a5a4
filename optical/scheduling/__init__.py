"""Circuits in time.

`birkhoff` takes demands apart into permutations, `schedule` has policies, the exact schedule and the bound,
`topology` circuits that stay for a job, `overlap` circuits that change within a collective.
"""
