"""What crosses a boundary: frozen, standard-library-only records and the errors that name their breaches.

Everything that the plugin, the engine, the worker and the queue say to each other is declared here and
nowhere else. Nothing in this package does I/O or imports outside the standard library, so that it can be
imported inside an SGLang process at no cost.
"""

CONTRACT_VERSION = 1
"""Version of the dump contract and of the published files. A reader refuses any other."""
