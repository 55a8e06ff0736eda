"""OpenTelemetry out of the process: spans and metrics to an OTLP receiver."""
