"""What Grafana and Prometheus read: a dashboard and alert rules on the metrics of brokers and workers."""
