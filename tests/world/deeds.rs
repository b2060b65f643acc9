//! What users do, and what befalls them: counted, so that a world in which something hardly comes up can be told
//! from one in which it goes well.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Try,
    WaitAtMost,
    Wait,
    SeveralResources,
    Namespace,
    Extend,
    Select,
    LookOn,
    Keep,
    KeepFor,
    DropGuard,
    Release,
    Run,
    /// The same holder tries again before its first try has ended, while it has the lock, or afterwards.
    RetryDuring,
    RetryWhileHeld,
    RetryAfterwards,
    /// One of these from another client.
    RetryElsewhere,
    DropFuture,
    LeaveUnpolled,
    PollElsewhere,
    ShutDown,
    DropClient,
    Inspect,
    ForceRelease,
    /// A client was asked after its runtime had ended.
    AskEnded,
    /// Runs of another kind.
    AdmissionOff,
    LargerQuorum,
    RuntimeApart,
    /// A command that was carried out after its connection had broken.
    LateCommand,
    /// A server in quarantine has extended a key that it kept.
    KeptInQuarantine,
    /// Of the mode for what several have together.
    Read,
    Write,
    TakePermit,
    Lead,
    AskForLeader,
    Observe,
    /// Two who read at one time.
    ReadTogether,
    /// A reader was refused by a writer that waits.
    WaitBehindWriter,
    /// A server in quarantine has kept a reader.
    KeptReader,
    /// Of the mode for leases that are moved.
    Detach,
    Attach,
    AttachLate,
    AttachCopy,
    Crash,
    Burst,
    TakeOfFewer,
    TakeOfMore,
    /// A copy was attached where others wait for the lock.
    AttachBesideWaiters,
    /// A client that goes by the records has left a mark.
    KeepAsRecorded,
    /// The time in the records was set.
    Raise,
    Lower,
    /// New servers were opened, or servers in use were not.
    Open,
    RefuseToOpen,
    /// One has waited beside an endless crowd.
    WaitBesideCrowd,
}

impl Deed {
    pub(crate) const ALL: [Self; 54] = [
        Self::Try,
        Self::WaitAtMost,
        Self::Wait,
        Self::SeveralResources,
        Self::Namespace,
        Self::Extend,
        Self::Select,
        Self::LookOn,
        Self::Keep,
        Self::KeepFor,
        Self::DropGuard,
        Self::Release,
        Self::Run,
        Self::RetryDuring,
        Self::RetryWhileHeld,
        Self::RetryAfterwards,
        Self::RetryElsewhere,
        Self::DropFuture,
        Self::LeaveUnpolled,
        Self::PollElsewhere,
        Self::ShutDown,
        Self::DropClient,
        Self::Inspect,
        Self::ForceRelease,
        Self::AskEnded,
        Self::AdmissionOff,
        Self::LargerQuorum,
        Self::RuntimeApart,
        Self::LateCommand,
        Self::KeptInQuarantine,
        Self::Read,
        Self::Write,
        Self::TakePermit,
        Self::Lead,
        Self::AskForLeader,
        Self::Observe,
        Self::ReadTogether,
        Self::WaitBehindWriter,
        Self::KeptReader,
        Self::Detach,
        Self::Attach,
        Self::AttachLate,
        Self::AttachCopy,
        Self::Crash,
        Self::Burst,
        Self::TakeOfFewer,
        Self::TakeOfMore,
        Self::AttachBesideWaiters,
        Self::KeepAsRecorded,
        Self::Raise,
        Self::Lower,
        Self::Open,
        Self::RefuseToOpen,
        Self::WaitBesideCrowd,
    ];

    /// Those from here on are of the mode for what several have together.
    pub(crate) const FIRST_TOGETHER: usize = Self::Read as usize;

    /// Those from here on are of the mode for leases that are moved.
    pub(crate) const FIRST_MOVED: usize = Self::Detach as usize;
}
