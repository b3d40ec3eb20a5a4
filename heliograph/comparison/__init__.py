"""The main question: a model on several systems, each with the best plan that a search finds for it.

`plan_estimates` prices many plans in closed form, `plan_search` runs the best of them on the engine, `search`
does so for one system and explains the best, `comparison` sets systems beside each other, and `ranges` asks
which of their numbers could turn the verdict. Nothing is imported here.
"""
