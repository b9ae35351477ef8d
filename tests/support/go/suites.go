// Package suites names the clients whose test suites run against a node, so that go.mod and go.sum pin them.
package suites

import (
	_ "github.com/segmentio/kafka-go"
	_ "github.com/twmb/franz-go/pkg/kgo"
)
