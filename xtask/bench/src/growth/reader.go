// Prints the nanoseconds of CPU that Go's own reader takes for a profile of the folder, the mean of some rounds.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"github.com/google/pprof/profile"
)

// cpu is the CPU time of the process, with the collection of garbage.
func cpu() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

func main() {
	rounds, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	names, err := filepath.Glob(filepath.Join(os.Args[1], "*.pb.gz"))
	if err != nil || len(names) == 0 {
		panic("the folder has no profiles")
	}
	var contents [][]byte
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			panic(err)
		}
		contents = append(contents, content)
	}
	var start int64
	// The first round warms up.
	for round := -1; round < rounds; round++ {
		if round == 0 {
			runtime.GC()
			start = cpu()
		}
		for _, content := range contents {
			parsed, err := profile.ParseData(content)
			if err != nil {
				panic(err)
			}
			runtime.KeepAlive(parsed)
		}
	}
	fmt.Println((cpu() - start) / int64(rounds*len(contents)))
}
