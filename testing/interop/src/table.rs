//! The table itself: which clients, which features, and what a client's interface cannot express, with the reason.
//! A new feature is a row here and a function in `rows/`; a new client is a variant of `Kind` and a program in `clients/`.

use crate::{
    cell::{Cell, Check},
    rows::{branches, browse, content, exchange, faults, flow, outcomes, transactions},
};

/// The clients, a column each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Proton,
    Rhea,
    QpidJms,
    GoAmqp,
    Fe2o3,
}

/// All columns in the order of the printed matrix.
pub(crate) const CLIENTS: [Kind; 5] = [Kind::Proton, Kind::Rhea, Kind::QpidJms, Kind::GoAmqp, Kind::Fe2o3];

impl Kind {
    /// The column's name, on the command line and in the output.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Proton => "proton",
            Kind::Rhea => "rhea",
            Kind::QpidJms => "qpid-jms",
            Kind::GoAmqp => "go-amqp",
            Kind::Fe2o3 => "fe2o3",
        }
    }

    /// The folder of its program below `clients/`.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Kind::Proton => "python",
            Kind::Rhea => "node",
            Kind::QpidJms => "java",
            Kind::GoAmqp => "go",
            Kind::Fe2o3 => "rust",
        }
    }

    /// The tools it needs on the machine.
    pub(crate) fn tools(self) -> &'static [&'static str] {
        match self {
            Kind::Proton => &["python3"],
            Kind::Rhea => &["node", "npm"],
            Kind::QpidJms => &["java", "javac", "mvn"],
            Kind::GoAmqp => &["go"],
            Kind::Fe2o3 => &["cargo"],
        }
    }

    /// Whether the application says how much credit the link gets; JMS only knows a prefetch.
    pub(crate) fn grants_credit(self) -> bool {
        self != Kind::QpidJms
    }

    /// Whether it writes `durable` false; otherwise it leaves the field out, for that is its default.
    pub(crate) fn says_not_durable(self) -> bool {
        !matches!(self, Kind::Proton | Kind::Fe2o3)
    }

    /// Whether its drain also sets the credit to 0, so that what is not on the way yet does not come.
    pub(crate) fn takes_credit_back_to_drain(self) -> bool {
        self == Kind::GoAmqp
    }

    /// Whether the application can look at the source that the broker answered with; JMS hides the protocol,
    /// and go-amqp tells of it the address and the filters.
    pub(crate) fn shows_the_answer_to_an_attach(self) -> bool {
        !matches!(self, Kind::QpidJms | Kind::GoAmqp)
    }

    /// Whether messages can be sent in a transaction; rhea writes no state on a transfer.
    pub(crate) fn sends_in_transactions(self) -> bool {
        self != Kind::Rhea
    }

    /// Whether any id can be discharged, or only one that was declared and not discharged yet.
    pub(crate) fn discharges_any_id(self) -> bool {
        self != Kind::Fe2o3
    }

    /// What it says of a message that was posted in a transaction when its outcome comes outside of it, as the refusal of one that
    /// does not exist must; `None`: that outcome.
    pub(crate) fn reads_no_outcome_outside_a_transaction(self) -> Option<&'static str> {
        (self == Kind::Fe2o3).then_some("IllegalDeliveryState")
    }

    /// Whether a transaction is a session's, one at a time.
    pub(crate) fn transactions_are_of_one_session(self) -> bool {
        self == Kind::QpidJms
    }

    /// Whether messages the application has not asked for yet use up the prefetch; rhea hands each over at once.
    pub(crate) fn prefetch_waits_for_the_application(self) -> bool {
        self != Kind::Rhea
    }
}

/// One row.
pub(crate) struct Feature {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&mut Cell<'_>) -> Check,
    /// Kills the broker, or needs one that is ours alone: gets one of its own.
    pub(crate) own_broker: bool,
}

const fn row(name: &'static str, run: fn(&mut Cell<'_>) -> Check) -> Feature {
    Feature { name, run, own_broker: false }
}

const fn killing(name: &'static str, run: fn(&mut Cell<'_>) -> Check) -> Feature {
    Feature { name, run, own_broker: true }
}

/// All rows in the order of the printed matrix.
pub(crate) const FEATURES: &[Feature] = &[
    row("auto-created", exchange::auto_created),
    row("durable", exchange::durable),
    row("non-durable", exchange::non_durable),
    row("pre-settled-send", exchange::pre_settled_send),
    row("pre-settled-receive", exchange::pre_settled_receive),
    row("unsettled", exchange::unsettled),
    row("in-flight-5000", exchange::in_flight),
    row("login-anonymous", exchange::login_anonymous),
    row("login-plain", exchange::login_plain),
    row("body-0", exchange::body_empty),
    row("body-1KiB", exchange::body_1_kib),
    row("body-64KiB", exchange::body_64_kib),
    row("body-1MiB", exchange::body_1_mib),
    row("body-10MiB", exchange::body_10_mib),
    row("body-100MiB", exchange::body_100_mib),
    row("sections", content::sections),
    row("types", content::types),
    row("accept", outcomes::accept),
    row("reject", outcomes::reject),
    row("release", outcomes::release),
    row("modify-failed", outcomes::modify_failed),
    row("modify-undeliverable", outcomes::modify_undeliverable),
    row("credit", flow::credit),
    row("drain", flow::drain),
    row("prefetch", flow::prefetch),
    row("receive-timeout", flow::receive_timeout),
    row("browse", browse::browse),
    row("links-50", flow::many_links),
    row("sessions-50", flow::many_sessions),
    row("detach-unseen", faults::detach_unseen),
    row("disconnect", faults::disconnect),
    killing("kill-confirmed", faults::kill_confirmed),
    killing("kill-duplicate-id", faults::kill_duplicate_id),
    killing("kill-sending", faults::kill_sending),
    killing("kill-unsettled", faults::kill_unsettled),
    row("tx-send", transactions::send),
    row("tx-send-abort", transactions::send_abort),
    row("tx-send-large", transactions::send_large),
    row("tx-send-pre-settled", transactions::send_pre_settled),
    row("tx-accept", transactions::accept),
    row("tx-outcomes", transactions::outcomes),
    row("tx-acquire", transactions::acquire),
    row("tx-rollback-order", transactions::rollback_order),
    row("tx-both", transactions::both),
    row("tx-two", transactions::two),
    row("tx-link-closed", transactions::link_closed),
    row("tx-session-closed", transactions::session_closed),
    row("tx-unknown-id", transactions::unknown_id),
    killing("tx-kill", transactions::kill),
    killing("tx-kill-committing", transactions::kill_committing),
    killing("tx-kill-outcomes", transactions::kill_outcomes),
    killing("tx-kill-failover", transactions::kill_failover),
    killing("xa-two-phase", branches::two_phase),
    killing("xa-kill-deciding", branches::kill_deciding),
    row("xa-one-phase", branches::one_phase),
    row("xa-rollback", branches::rollback),
    killing("xa-join", branches::join),
    row("xa-names", branches::names),
    row("xa-timeout", branches::timeout),
    killing("xa-heuristic", branches::heuristic),
];

const NO_STATE_SENT: &str = "rhea writes no state on a transfer, so that nothing can be sent in a transaction";
const ONE_AT_A_TIME: &str = "a JMS session has one transaction at any time, and hides its coordinator and its id";
const NO_FLOW_PROPERTIES: &str =
    "no call puts properties on a flow, which would say that its credit is for a transaction";
const NO_PREFETCH: &str =
    "what came before a rollback and was not looked at stays with the application: the order is its own";
const ONE_RESOURCE: &str =
    "XA is our extension of AMQP: one resource for it is written, in Java over Proton-J, on which Qpid JMS stands";
const ONLY_ACCEPTED: &str = "what a transacted session of JMS receives is accepted";
const NO_FAILOVER: &str = "its transactions end with their connection: that is row tx-kill";

/// Cells that the client's interface cannot express, with the reason that is printed; a name that ends with `*` is that of all
/// rows that begin so. Not for what is only laborious.
pub(crate) const NOT_APPLICABLE: &[(Kind, &str, &str)] = &[
    (Kind::QpidJms, "credit", "JMS has a prefetch, no call grants a number of messages"),
    (Kind::Rhea, "tx-send*", NO_STATE_SENT),
    (Kind::Rhea, "tx-both", NO_STATE_SENT),
    (Kind::QpidJms, "tx-outcomes", ONLY_ACCEPTED),
    (Kind::QpidJms, "tx-kill-outcomes", ONLY_ACCEPTED),
    (Kind::Proton, "tx-acquire", NO_FLOW_PROPERTIES),
    (Kind::Rhea, "tx-acquire", NO_FLOW_PROPERTIES),
    (Kind::QpidJms, "tx-acquire", NO_FLOW_PROPERTIES),
    (Kind::QpidJms, "tx-two", ONE_AT_A_TIME),
    (Kind::QpidJms, "tx-link-closed", ONE_AT_A_TIME),
    (Kind::QpidJms, "tx-unknown-id", ONE_AT_A_TIME),
    (
        Kind::GoAmqp,
        "tx-*",
        "go-amqp has no transactions: its targets are no coordinators, its outcomes not transactional",
    ),
    (Kind::Proton, "tx-rollback-order", NO_PREFETCH),
    (Kind::Rhea, "tx-rollback-order", NO_PREFETCH),
    (Kind::Proton, "tx-kill-failover", NO_FAILOVER),
    (Kind::Rhea, "tx-kill-failover", NO_FAILOVER),
    (Kind::Fe2o3, "tx-rollback-order", NO_PREFETCH),
    (Kind::Fe2o3, "tx-link-closed", "its transactions borrow their controller, which cannot be closed before they end"),
    (Kind::Fe2o3, "tx-kill-failover", NO_FAILOVER),
    (Kind::Proton, "xa-*", ONE_RESOURCE),
    (Kind::Rhea, "xa-*", ONE_RESOURCE),
    (Kind::GoAmqp, "xa-*", ONE_RESOURCE),
    (Kind::Fe2o3, "xa-*", ONE_RESOURCE),
];

/// The reason, if the cell is not applicable.
pub(crate) fn not_applicable(kind: Kind, feature: &str) -> Option<&'static str> {
    let fits = |name: &str| name.strip_suffix('*').map_or(name == feature, |start| feature.starts_with(start));
    NOT_APPLICABLE.iter().find(|(client, name, _)| *client == kind && fits(name)).map(|(_, _, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_exceptions_name_real_rows() {
        let names: BTreeSet<&str> = FEATURES.iter().map(|feature| feature.name).collect();
        assert_eq!(names.len(), FEATURES.len());
        for (kind, feature, _) in NOT_APPLICABLE {
            let (start, exact) = feature.strip_suffix('*').map_or((*feature, true), |start| (start, false));
            assert!(
                names.iter().any(|name| if exact { *name == start } else { name.starts_with(start) }),
                "{kind:?} {feature}"
            );
        }
    }

    #[test]
    fn every_client_has_its_program() {
        for kind in CLIENTS {
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(kind.folder());
            assert!(folder.is_dir(), "{}", folder.display());
        }
    }
}
