// Command load is both ends of the benchmarks: the backend and its clients.  It uses the standard library only.
package main

import (
	"fmt"
	"log"
	"os"
)

const usage = `usage: load COMMAND [flags]        load COMMAND --help

  backend   serve streams of bytes on one port, HTTP on another and HTTPS on a third
  bulk      move bytes through streams, all at once, and print the rate
  transfer  download or upload one HTTP body, and print the rate
  requests  send HTTP requests over kept-alive connections, and print rate and latency
  watches   hold watches open, and print the latency of their events
`

func main() {
	commands := map[string]func([]string) error{"backend": backend, "bulk": bulk, "transfer": transfer, "requests": requests, "watches": watches}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err := commands[os.Args[1]](os.Args[2:]); err != nil {
		log.Fatalf("%s: %v", os.Args[1], err)
	}
}
