package main

import (
	"encoding/binary"
	"encoding/json"
	"flag"
	"io"
	"os"
	"time"
)

// bulk transfers bytes through several connections in parallel.
func bulk(arguments []string) error {
	flags := flag.NewFlagSet("load bulk", flag.ExitOnError)
	address := flags.String("address", "127.0.0.1:9100", "`address` of the backend or of a system in front of it")
	direction := flags.String("direction", "down", "down (from the backend) or up")
	size := flags.Int64("bytes", 1<<30, "total number of bytes")
	streams := flags.Int("streams", 1, "number of parallel connections")
	find := addFlags(flags)
	flags.Parse(arguments)
	way, err := find()
	if err != nil {
		return err
	}
	share := *size / int64(*streams)
	results := make(chan error)
	begin := time.Now()
	for range *streams {
		go func() { results <- way.move(*address, *direction == "down", share) }()
	}
	for range *streams {
		if err := <-results; err != nil {
			return err
		}
	}
	return report(share*int64(*streams), time.Since(begin))
}

// report prints the rate of a transfer.
func report(size int64, took time.Duration) error {
	return json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"bytes": float64(size), "seconds": took.Seconds(), "rate": float64(size) / took.Seconds() / 1e6,
	})
}

func (w *way) move(address string, down bool, size int64) error {
	connection, err := w.dial(address, false)
	if err != nil {
		return err
	}
	defer connection.Close()
	header := make([]byte, 9)
	header[0] = 'U'
	if down {
		header[0] = 'D'
	}
	binary.BigEndian.PutUint64(header[1:], uint64(size))
	if _, err := connection.Write(header); err != nil {
		return err
	}
	if down {
		return receive(connection, size)
	}
	if err := send(connection, size); err != nil {
		return err
	}
	_, err = io.ReadFull(connection, header[:1])
	return err
}
