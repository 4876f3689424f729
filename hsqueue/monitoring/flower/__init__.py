"""What hsqueue adds to Flower: readable tasks, and the pages under ``/samples`` that show the ledger."""
