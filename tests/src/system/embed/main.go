// A program in Go that embeds the agent through cgo.
package main

// #include <stdlib.h>
// #include "emberline.h"
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"unsafe"
)

func check(status C.emberline_status) {
	if status != C.EMBERLINE_STATUS_OK {
		fmt.Fprintln(os.Stderr, C.GoString(C.emberline_last_error()))
		os.Exit(1)
	}
}

// Runs work as a task. A goroutine moves between threads: it stays on one while it is in a task.
func task(name, key string, work func(task C.uint64_t)) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cname, ckey := C.CString(name), C.CString(key)
	defer C.free(unsafe.Pointer(cname))
	defer C.free(unsafe.Pointer(ckey))
	begun := C.emberline_task_begin(cname, ckey)
	defer func() { check(C.emberline_task_end(begun)) }()
	work(begun)
}

func main() {
	worker, collector := C.CString("embedded-go"), C.CString(os.Args[1])
	check(C.emberline_start(worker, collector))
	task("load", "load-17", func(begun C.uint64_t) {
		var all sync.WaitGroup
		for part := 0; part < 3; part++ {
			all.Add(1)
			go func() {
				defer all.Done()
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				check(C.emberline_task_enter(begun))
				defer func() { check(C.emberline_task_leave(begun)) }()
				sum := 0
				for turn := 0; turn < 300_000_000; turn++ {
					sum += turn ^ part
				}
				runtime.KeepAlive(sum)
			}()
		}
		all.Wait()
	})
	fmt.Println(C.GoString(C.emberline_mode()))
	check(C.emberline_stop())
	fmt.Println("done")
}
