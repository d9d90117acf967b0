module tower/benchmarks/load

go 1.25
