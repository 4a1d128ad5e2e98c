"""Alarms, dashboard, budget, TensorBoard, and the CloudWatch agent's configuration."""
