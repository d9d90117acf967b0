"""Clusters that are reached by SSH to their nodes, without an agent."""
