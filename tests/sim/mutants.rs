//! Planted bugs: each breaks one rule of the protocol, in the simulator's own glue or in its
//! fake scripts, never in `src/`.

macro_rules! mutants {
    ($($name:ident $rule:literal $what:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Mutant { $($name,)* }

        impl Mutant {
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];

            pub(crate) const fn rule(self) -> &'static str {
                match self { $(Self::$name => $rule,)* }
            }

            pub(crate) const fn what(self) -> &'static str {
                match self { $(Self::$name => $what,)* }
            }

            pub(crate) fn parse(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|mutant| format!("{mutant:?}") == name)
            }
        }
    };
}

mutants! {
    SameValue "P1" "the same value for every try",
    ValidityFromReply "P2" "validity counts from the deciding reply",
    NoDrift "P2" "nothing is taken off for drift",
    LateWin "P2" "a win is not checked against the clock",
    ClockStopsInPause "P3" "the deciding clock stands still while the process is paused",
    HalfQuorum "P4" "N/2 votes win",
    CountConnected "P4" "a majority of the connected instances wins",
    WaitForAll "P4" "the verdict waits for every reply",
    UnknownIsGrant "P5" "unknown counts as granted",
    UnknownNotReleased "P5" "unknown is not released",
    RefusedNotReleased "P5" "refused is not released, though it was sent twice",
    LateGrantNotReleased "P6" "only grants known at the verdict are released",
    CancelLeavesKeys "P6" "a cancelled round is not released",
    NoBar "P6" "a release that finds nothing does not bar its own late acquire",
    NoBarWhereDeleted "P6" "a release that deletes does not bar the repeat that is still on its way",
    ReleaseSomeOnly "P7" "a release goes to a quorum only",
    NoValueCheck "P7" "a release deletes any value",
    RelyWhileReleasing "P7" "the lease is relied on until the release is answered",
    FailedExtendDeletes "P8" "a failed extend deletes the keys",
    ExtendTakesForeign "P8" "an extend overwrites another value",
    NoContinuity "P9" "an extend may be decided after the validity has passed",
    ReviveLost "P9" "a lost lease is extended again",
    ExtendShortens "P9" "an extend may shorten the ttl",
    LateExtendShortens "P9" "a copy that is late shortens what a longer extend gave",
    NoRepair "P10" "an extend sets no missing key",
    LateExtendRepairs "P10" "an extend that comes after its release sets the keys again",
    PartialGrant "P11" "an acquire sets the keys that are free",
    NoStaleCheck "P12" "an instance grants any token",
    TokenNotStored "P12" "an instance stores no token",
    KeepOldGrants "P12" "a repeat with a larger token keeps the grants of the smaller one",
    OneRepeat "P12" "a stale round is repeated once only",
    SameTokenAgain "P12" "a repeat proposes the same token again",
    FirstStaleNamed "P12" "of several stale resources the first is named, not the largest token",
    OwnKeyNotFree "P12" "the round's own key stands in its way",
    AnyTokenStored "P12" "an instance grants a token that no clock can have made",
    OddTokenStays "P12" "an instance goes by a stored token that no clock can have made",
    AnyTokenBelieved "P12" "what one instance says of its tokens is carried to all resources",
    UnpaddedText "P13" "tokens are compared as text without leading zeros",
    DoubleCompare "P13" "tokens are compared as doubles",
    FenceExpiresWithLease "P13" "tokens are kept only as long as the lease",
    ForgetByName "P13" "old tokens are removed by name, after they were read by score",
    RepairNotAdmitted "P10" "an extend repairs on an instance that is not admitted",
    NoAdmission "P14" "no admission: an instance that forgot votes at once",
    AnyIdentity "P14" "a record that names another process admits",
    NoQuarantine "P14" "the instant from which an instance may vote is not looked at",
    MissingRecordVotes "P14" "an instance without a record votes",
    UptimeAlone "P15" "an instance votes once its process is up for the longest ttl",
    OldRecordVotes "P15" "an older record of the same process is believed",
    FlushedVotesAtOnce "P15" "a missing record on a long-running instance admits at once",
    WaitsFromTheStart "P15" "a young process waits from its start, by a clock that may have been set since",
    OpenAfterVoting "P15" "instances that have voted already may be let vote at once",
    OpenBySetBack "P15" "instances may be let vote at once by their records alone, whatever became of a clock",
    OpenReachable "P15" "the reachable instances may vote at once when none of them has a record",
    TtlAboveMax "P16" "a ttl above the longest that was agreed",
    MaxTtlDiffers "P16" "clients wait out different longest ttls",
    QuarantineByMaxTtl "P29" "an instance waits for what its own client asks for, not for what others may",
    NoClockWatch "P17" "clock steps are not noticed",
    OffDropsFencing "P18" "without admission there is no fencing",
    TakenOverDeleted "P23" "what a try that was not won took over is deleted",
    LineForgotten "P23" "a try that was taken over in turn stays in the chain when it ends",
    TakeoverShortens "P23" "a key that is taken over may end sooner than it would have",
    LateCopyLeavesLine "P23" "a late copy of an acquire that is refused takes its round out of the chain",
    ReservationForAll "P26" "a reservation is free to everybody",
    ReservationStays "P26" "a reservation has no end",
    PassOnUncompared "P26" "a successor is named whatever the key holds",
    WakeIsGrant "P26" "being woken by an instance counts as its vote",
    RecordReadFirst "P28" "the record is read before the key is set",
    TokenAnswerIgnored "P28" "a plain token counts whatever `ZADD` says",
    EqualTokenRaised "P28" "a plain token counts that is equal to the stored one",
    CountIsAll "P28" "of several plain tokens in one command all count if some were raised",
    PlainBreaksBar "P28" "a plain token takes the place of a tombstone",
    SetNotLookedAt "P28" "neither `SET`'s answer nor the value under the key is looked at",
    PlainClockIgnored "P28" "the clock of a plain grant is not looked at",
    PlainNotReleased "P28" "what plain commands set is not released where the record is another one",
    FormerNotEnded "P28" "what a former connection carries is not ended before a release over the next one",
    LatestFormerEnded "P28" "of several former connections only the latest is ended",
    LateCopyCounts "P28" "the answer to a late copy counts for the round that is under way",
}
