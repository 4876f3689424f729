"""Everything on one machine: the processes that ``hsqueue run`` starts, watches and ends."""
