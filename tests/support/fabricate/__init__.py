"""What tests and benchmarks need beyond `exporter.demo` to make homes in Hermes's own format."""
