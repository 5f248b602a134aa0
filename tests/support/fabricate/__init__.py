"""What tests and benchmarks need in addition to `exporter.demo` to make homes like Hermes does."""
