"""The fast tier: collectives and training steps in closed form, over arrays of candidate plans.

`lines` has collectives on a fabric as lines over the payload, `step_arrays` the pieces of steps, and `step`
works out from them how long steps take. `simulator.engine.simulation` is the truth; where they differ, this
is wrong.
"""
