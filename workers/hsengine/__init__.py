"""The embedded engine: a small CPU server that speaks SGLang's ``/generate`` and writes the same dumps."""
