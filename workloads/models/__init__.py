"""Architectures of transformers.

`architecture` has their shape, `config` the reader of published ``config.json`` files.
"""
