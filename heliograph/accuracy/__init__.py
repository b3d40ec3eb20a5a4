"""Accuracy that a system delivers: the noise of its products, and its price in training loss.

`precision` says what reaches the products of a step, `small_gpt` trains a small GPT through it, and `law`
predicts the loss at other sizes from the trainings in `noise_law.csv`. Nothing is imported here.
"""
