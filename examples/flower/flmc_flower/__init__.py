"""Federated Langevin Monte Carlo as a Flower app: ``task`` has what is computed, without Flower;
``client_app`` and ``server_app`` carry it through Flower's messages."""
