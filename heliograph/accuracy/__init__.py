"""Accuracy that a system delivers: noise over signal of its products, and what that costs in training.

`precision` says what reaches the products of a step, `small_gpt` trains a small GPT through it, and `law`
predicts the loss at other sizes from the trainings in `noise_law.csv`. Nothing is imported here.
"""
