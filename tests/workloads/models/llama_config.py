"""The least `config.json` that is read."""

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 8,
    "num_hidden_layers": 2,
    "num_key_value_heads": 4,
    "max_position_embeddings": 256,
    "vocab_size": 1000,
}
