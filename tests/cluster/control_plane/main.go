// One program for kube-apiserver, kube-controller-manager and kube-scheduler, which share most packages:
// `kube apiserver --flags`, `kube controller-manager --flags`, `kube scheduler --flags`.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	commands := map[string]func() *cobra.Command{
		"apiserver":          apiserver.NewAPIServerCommand,
		"controller-manager": manager.NewControllerManagerCommand,
		"scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	}
	if len(os.Args) > 1 {
		if command, known := commands[os.Args[1]]; known {
			os.Args = os.Args[1:] // a component's name is its first argument
			os.Exit(cli.Run(command()))
		}
	}
	fmt.Fprintln(os.Stderr, "usage: kube apiserver|controller-manager|scheduler [--flags]")
	os.Exit(2)
}
