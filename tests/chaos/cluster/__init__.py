"""Several nodes as several nodes, on one machine: see ``cluster.Cluster``."""
