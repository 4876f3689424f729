"""Capture inside an SGLang server, by SGLang's own plugin interface; no file of SGLang is changed."""
