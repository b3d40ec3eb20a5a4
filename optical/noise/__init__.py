"""Link budgets of photonic cores: loss, received power, and every cause of noise."""
