"""AdaptiveSpec inside SGLang: a plugin beside the stock engine."""
