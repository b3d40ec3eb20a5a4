"""Architectures of transformers and their Hugging Face `config.json` files."""
