"""Failures of parts and the goodput that they leave."""
