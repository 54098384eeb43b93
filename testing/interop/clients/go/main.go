// go-amqp as a client of the interop matrix.
//
// Reads one command a line on standard input, answers one line each on standard output; the commands are described in
// ../../README.md. It owns nothing but the translation from commands to go-amqp's API: what is right is judged by the driver.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/Azure/go-amqp"
)

const short = 30 * time.Second

type receiver struct {
	link    *amqp.Receiver
	settled bool
	held    []*amqp.Message
}

type client struct {
	connections map[string]*amqp.Conn
	sessions    map[string]*amqp.Session
	senders     map[string]*sender
	receivers   map[string]*receiver
}

type sender struct {
	link    *amqp.Sender
	settled bool
}

func (c *client) clear() {
	c.connections, c.sessions = map[string]*amqp.Conn{}, map[string]*amqp.Session{}
	c.senders, c.receivers = map[string]*sender{}, map[string]*receiver{}
}

func within(limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), limit)
}

func str(c typed, key string) string { s, _ := c[key].(string); return s }
func num(c typed, key string) int    { n, _ := c[key].(float64); return int(n) }

func print(answer typed) {
	line := must(json.Marshal(answer))
	os.Stdout.Write(append(line, '\n'))
}

// perform runs one command; a panic in a translation is an answer too, not the end of the program.
func (c *client) perform(command typed) (answer typed) {
	defer func() {
		if trouble := recover(); trouble != nil {
			answer = typed{"error": fmt.Sprint(trouble)}
		}
	}()
	answer, err := c.run(command)
	if err != nil {
		return typed{"error": err.Error()}
	}
	if answer == nil {
		answer = typed{}
	}
	answer["ok"] = true
	return answer
}

func (c *client) run(command typed) (typed, error) {
	ctx, cancel := within(short)
	defer cancel()
	name := str(command, "link")
	switch str(command, "do") {
	case "connect":
		login := amqp.SASLTypeAnonymous()
		if user := str(command, "user"); user != "" {
			login = amqp.SASLTypePlain(user, str(command, "password"))
		}
		conn, err := amqp.Dial(ctx, fmt.Sprintf("amqp://%s:%d", str(command, "host"), num(command, "port")), &amqp.ConnOptions{SASLType: login})
		c.connections[str(command, "connection")] = conn
		return nil, err
	case "session":
		session, err := c.connections[str(command, "connection")].NewSession(ctx, nil)
		c.sessions[str(command, "session")] = session
		return nil, err
	case "sender":
		link, err := c.sessions[str(command, "session")].NewSender(ctx, str(command, "address"), &amqp.SenderOptions{Name: name, SettlementMode: mode(command)})
		c.senders[name] = &sender{link, str(command, "settle") == "settled"}
		return nil, err
	case "receiver":
		credit := int32(num(command, "prefetch"))
		if credit == 0 {
			credit = -1 // issued by hand
		}
		options := &amqp.ReceiverOptions{Name: name, Credit: credit, RequestedSenderSettleMode: mode(command)}
		if browse, _ := command["browse"].(bool); browse {
			options.SourceDistributionMode = amqp.SourceDistributionModeCopy
		}
		link, err := c.sessions[str(command, "session")].NewReceiver(ctx, str(command, "address"), options)
		c.receivers[name] = &receiver{link: link, settled: str(command, "settle") == "settled"}
		return nil, err
	case "send":
		count, next := num(command, "count"), num(command, "from")
		end, window := next+count, num(command, "window")
		if window == 0 {
			window = count
		}
		return c.sendAll(c.senders[name], window, num(command, "progress"), func() (int, *amqp.Message) {
			if next == end {
				return 0, nil
			}
			next++
			return next - 1, numbered(next-1, num(command, "size"), command["durable"], command["ids"] == true)
		})
	case "send_specs":
		specs, next := command["messages"].([]any), 0
		return c.sendAll(c.senders[name], 100, 0, func() (int, *amqp.Message) {
			if next == len(specs) {
				return 0, nil
			}
			next++
			return next - 1, composed(specs[next-1].(typed))
		})
	case "credit":
		return nil, c.receivers[name].link.IssueCredit(uint32(num(command, "count")))
	case "receive":
		return c.receive(c.receivers[name], command)
	case "settle":
		r := c.receivers[name]
		for _, m := range r.held {
			if err := settle(r.link, m, str(command, "outcome")); err != nil {
				return nil, err
			}
		}
		r.held = nil
		return nil, nil
	case "drain":
		return nil, c.receivers[name].link.DrainCredit(ctx, nil)
	case "detach":
		if s, there := c.senders[name]; there {
			delete(c.senders, name)
			return nil, s.link.Close(ctx)
		}
		r := c.receivers[name]
		delete(c.receivers, name)
		return nil, r.link.Close(ctx)
	case "end":
		return nil, c.sessions[str(command, "session")].Close(ctx)
	case "close":
		conn := c.connections[str(command, "connection")]
		delete(c.connections, str(command, "connection"))
		return nil, conn.Close()
	case "reset":
		for _, conn := range c.connections {
			conn.Close()
		}
		c.clear()
		return nil, nil
	}
	return nil, fmt.Errorf("no command %v", command["do"])
}

func mode(command typed) *amqp.SenderSettleMode {
	switch str(command, "settle") {
	case "settled":
		return amqp.SenderSettleModeSettled.Ptr()
	case "unsettled":
		return amqp.SenderSettleModeUnsettled.Ptr()
	}
	return nil
}

type posted struct {
	number  int
	receipt amqp.SendReceipt
}

// sendAll keeps up to `window` messages unsettled. With `progress` a lost connection ends it and is not an error.
func (c *client) sendAll(s *sender, window, progress int, next func() (int, *amqp.Message)) (typed, error) {
	var open []posted
	confirmed, others, high, lost := []int{}, []string{}, 0, ""
	accepted := 0
	reap := func(keep int) error {
		for len(open) > keep {
			ctx, cancel := within(4 * short)
			state, err := open[0].receipt.Wait(ctx)
			cancel()
			if err != nil {
				return err
			}
			if _, is := state.(*amqp.StateAccepted); is {
				accepted++
				if progress > 0 {
					confirmed = append(confirmed, open[0].number)
					if accepted%progress == 0 {
						print(typed{"event": "progress", "confirmed": accepted})
					}
				}
			} else if len(others) < 5 {
				others = append(others, fmt.Sprintf("%d: %T %+v", open[0].number, state, state))
			}
			open = open[1:]
		}
		return nil
	}
	err := func() error {
		for {
			number, m := next()
			if m == nil {
				return reap(0)
			}
			if err := reap(window - 1); err != nil {
				return err
			}
			ctx, cancel := within(4 * short)
			if s.settled { // nothing will be told about it
				err := s.link.Send(ctx, m, nil)
				cancel()
				if err != nil {
					return err
				}
				continue
			}
			receipt, err := s.link.SendWithReceipt(ctx, m, nil)
			cancel()
			if err != nil {
				return err
			}
			open = append(open, posted{number, receipt})
			high = max(high, len(open))
		}
	}()
	if err != nil {
		if progress == 0 {
			return nil, err
		}
		lost = err.Error()
		for _, p := range open { // those that were confirmed before the connection went
			ctx, cancel := within(100 * time.Millisecond)
			if state, err := p.receipt.Wait(ctx); err == nil {
				if _, is := state.(*amqp.StateAccepted); is {
					accepted++
					confirmed = append(confirmed, p.number)
				}
			}
			cancel()
		}
	}
	return typed{"accepted": accepted, "confirmed": confirmed, "others": others, "in_flight": high, "lost": lost}, nil
}

func settle(link *amqp.Receiver, m *amqp.Message, outcome string) error {
	ctx, cancel := within(short)
	defer cancel()
	switch outcome {
	case "accept":
		return link.AcceptMessage(ctx, m)
	case "reject":
		return link.RejectMessage(ctx, m, &amqp.Error{Condition: "packhorse:interop", Description: "rejected by the test"})
	case "release":
		return link.ReleaseMessage(ctx, m)
	default:
		return link.ModifyMessage(ctx, m, &amqp.ModifyMessageOptions{DeliveryFailed: true, UndeliverableHere: outcome == "undeliverable"})
	}
}

func (c *client) receive(r *receiver, command typed) (typed, error) {
	out := []any{}
	outcome := str(command, "settle")
	if outcome == "" {
		outcome = "accept"
	}
	for len(out) < num(command, "count") {
		ctx, cancel := within(time.Duration(num(command, "timeout_ms")) * time.Millisecond)
		m, err := r.link.Receive(ctx, nil)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, err
		}
		if detail, _ := command["detail"].(bool); detail {
			out = append(out, view(m))
		} else {
			out = append(out, summary(m))
		}
		if r.settled {
			continue
		}
		if outcome == "hold" {
			r.held = append(r.held, m)
		} else if err := settle(r.link, m, outcome); err != nil {
			return nil, err
		}
	}
	return typed{"messages": out}, nil
}

func main() {
	c := &client{}
	c.clear()
	lines := bufio.NewReaderSize(os.Stdin, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var command typed
		if err := json.Unmarshal(line, &command); err != nil {
			print(typed{"error": err.Error()})
			continue
		}
		print(c.perform(command))
	}
}
