// Divides its CPU time 3 : 1 between two functions, for ever.
package main

import (
	"fmt"
	"time"
)

var sink int

//go:noinline
func heavy() {
	for turn := 0; turn < 500000; turn++ {
		sink += turn
	}
}

//go:noinline
func light() {
	for turn := 0; turn < 500000; turn++ {
		sink += turn
	}
}

func main() {
	fmt.Println("ready")
	// Not by numbers of turns: a processor may run the same loop faster at one place than at another.
	var ofHeavy, ofLight time.Duration
	for {
		for ofHeavy < 3*ofLight+75*time.Millisecond {
			start := time.Now()
			heavy()
			ofHeavy += time.Since(start)
		}
		for 3*ofLight < ofHeavy {
			start := time.Now()
			light()
			ofLight += time.Since(start)
		}
	}
}
