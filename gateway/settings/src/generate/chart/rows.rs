//! The chart's own values, one row each: what a cluster needs to know besides the settings of the gateways.

/// One value of the chart.
#[derive(Debug)]
pub(super) struct ChartValue {
    /// Its name; dots lead into tables.
    pub(super) path: &'static str,
    /// What it does, in sentences.
    pub(super) meaning: &'static str,
    /// What it may be.
    pub(super) shape: Shape,
    /// The value when nothing is given, as JSON, which is YAML too.
    pub(super) default: &'static str,
}

/// What a value may be. The contents of objects are Kubernetes' own, whose API server checks them.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    /// A text.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// True or false.
    Switch,
    /// A whole number between two.
    Integer(u64, u64),
    /// An object.
    Object,
    /// An object of texts.
    TextMap,
    /// A list of texts.
    Texts,
    /// A list of objects.
    Objects,
}

impl ChartValue {
    /// The table that it is in, and its name there.
    pub(super) fn place(&self) -> (&'static str, &'static str) {
        self.path.rsplit_once('.').unwrap_or(("", self.path))
    }
}

const fn row(
    path: &'static str,
    shape: Shape,
    default: &'static str,
    meaning: &'static str,
) -> ChartValue {
    ChartValue {
        path,
        meaning,
        shape,
        default,
    }
}

/// What `settings` is.
pub(super) const SETTINGS: &str = "The settings of the gateways, named as in the settings file. The chart sets the others \
     itself: the addresses, the paths below its volumes, and the files of the keys above.";

/// The settings that follow from the chart's own values, and so are no values.
pub(super) const SET_BY_CHART: &[&str] = &[
    "listen.address",
    "store.path",
    "worker.name",
    "worker.peer_listen",
    "worker.peer_advertise",
    "worker.fleet_keys_file",
    "code.base_dir",
    "auth.api_keys_file",
];

/// Settings with another default in the chart, and why.
pub(super) const DEFAULTS: &[(&str, &str, &str)] = &[
    (
        "worker.stop_patience_ms",
        "35000",
        "Longer than a run of code may take by default; terminationGracePeriodSeconds follows from it.",
    ),
    (
        "log.format",
        "json",
        "Clusters collect logs by their fields.",
    ),
];

/// The default of a setting in the chart, and why it is another one.
pub(super) fn default_of(key: &str) -> Option<(&'static str, &'static str)> {
    let row = DEFAULTS.iter().find(|(name, _, _)| *name == key);
    row.map(|(_, value, reason)| (*value, *reason))
}

/// What tables of values are about.
pub(super) const GROUPS: &[(&str, &str)] = &[
    (
        "image",
        "The image of the gateways: the target `gateway`, or `gateway-slim` without language runtimes.",
    ),
    (
        "apiKeys",
        "The keys of callers, where `settings.auth.mode` is `api-key`.",
    ),
    (
        "redis",
        "Where session records are: in the Redis of this chart, or in one that is there already.",
    ),
    (
        "redis.image",
        "The image of this Redis: the target `redis`, or `valkey`.",
    ),
    ("redis.storage", "Its volume."),
    (
        "fleetKeys",
        "The keys by which gateways know each other. They are needed as soon as there is a Redis.",
    ),
    (
        "volume",
        "The volume for the files of code sessions. All gateways mount it. Without it, one gateway keeps them in its pod.",
    ),
    (
        "sandbox",
        "What the tier `strict` of the sandbox needs of a node. Without effect where no server is of kind `code`, and where `settings.code.isolation` is `degraded`.",
    ),
    (
        "serviceAccount",
        "The gateways ask nothing of the API server; no token is mounted.",
    ),
    (
        "service",
        "The address of the gateways in the cluster. It needs no sticky sessions.",
    ),
    (
        "ingress",
        "The address outside. It serves the paths for clients alone, not the metrics.",
    ),
    ("autoscaling", "A HorizontalPodAutoscaler for the gateways."),
    (
        "podDisruptionBudget",
        "How many gateways an eviction may stop at a time.",
    ),
    (
        "networkPolicy",
        "A NetworkPolicy: who may connect to gateways and Redis. Gateways may connect to everything.",
    ),
    (
        "monitoring",
        "For the Prometheus operator and Grafana's sidecar: a ServiceMonitor, a PrometheusRule and the dashboards as ConfigMaps. Gateways then answer `/metrics` to everybody who can connect, unless `settings.listen.probe_detail` says otherwise.",
    ),
];

/// The chart's own values, in the order in which people read them.
pub(super) const VALUES: &[ChartValue] = &[
    row(
        "replicaCount",
        Shape::Integer(0, 1000),
        "2",
        "How many gateways. Without effect with `autoscaling.enabled`. Several gateways need a Redis.",
    ),
    row(
        "image.repository",
        Shape::Text,
        r#""mooring-gateway""#,
        "Where it is.",
    ),
    row(
        "image.tag",
        Shape::Text,
        r#""""#,
        "Empty: the chart's appVersion.",
    ),
    row(
        "image.digest",
        Shape::Text,
        r#""""#,
        "Such as `sha256:...`; then the tag does not count.",
    ),
    row(
        "image.pullPolicy",
        PULL_POLICY,
        r#""IfNotPresent""#,
        "When the image is pulled.",
    ),
    row(
        "imagePullSecrets",
        Shape::Objects,
        "[]",
        "Secrets for the registry, such as `[{name: registry}]`.",
    ),
    row(
        "apiKeys.existingSecret",
        Shape::Text,
        r#""""#,
        "A Secret whose entry `keys.json` is a file that `mooring keys create` has made.",
    ),
    row(
        "secretFiles",
        Shape::Texts,
        "[]",
        "Names of Secrets that settings read as files: each entry is `/etc/mooring/secrets/NAME/ENTRY`.",
    ),
    row(
        "extraEnv",
        Shape::Objects,
        "[]",
        "Environment variables of the gateways, for settings with `env:NAME`.",
    ),
    row(
        "extraEnvFrom",
        Shape::Objects,
        "[]",
        "ConfigMaps and Secrets whose entries become environment variables, such as `[{secretRef: {name: tokens}}]`.",
    ),
    row(
        "redis.enabled",
        Shape::Switch,
        "true",
        "Whether the chart runs a Redis with the module: one process with a volume. False, without `existingSecret` and `settings.store.url`, is one gateway with a file.",
    ),
    row(
        "redis.existingSecret",
        Shape::Text,
        r#""""#,
        "A Secret whose entry `url` is the address, with user and password. For the Redis of this chart it also has `users.acl`. Empty: the chart makes one, with passwords of its own.",
    ),
    row(
        "redis.resources",
        Shape::Object,
        r#"{"requests": {"cpu": "250m", "memory": "256Mi"}}"#,
        "Processor time and memory of this Redis.",
    ),
    row(
        "redis.image.repository",
        Shape::Text,
        r#""mooring-redis""#,
        "Where it is.",
    ),
    row(
        "redis.image.tag",
        Shape::Text,
        r#""""#,
        "Empty: the chart's appVersion.",
    ),
    row(
        "redis.image.pullPolicy",
        PULL_POLICY,
        r#""IfNotPresent""#,
        "When the image is pulled.",
    ),
    row("redis.storage.size", Shape::Text, r#""8Gi""#, "Its size."),
    row(
        "redis.storage.storageClass",
        Shape::Text,
        r#""""#,
        "Empty: the cluster's default.",
    ),
    row(
        "fleetKeys.existingSecret",
        Shape::Text,
        r#""""#,
        "A Secret whose entry `fleet.keys` is the file. Empty: the chart makes one.",
    ),
    row(
        "volume.enabled",
        Shape::Switch,
        "false",
        "Whether there is one.",
    ),
    row(
        "volume.existingClaim",
        Shape::Text,
        r#""""#,
        "A claim that is there already. Empty: the chart makes one.",
    ),
    row(
        "volume.accessMode",
        Shape::Word(&["ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]),
        r#""ReadWriteMany""#,
        "Several gateways need ReadWriteMany.",
    ),
    row(
        "volume.storageClass",
        Shape::Text,
        r#""""#,
        "Empty: the cluster's default, which is rarely one with ReadWriteMany.",
    ),
    row("volume.size", Shape::Text, r#""20Gi""#, "Its size."),
    row(
        "sandbox.seccompProfile",
        Shape::Text,
        r#""mooring/seccomp.json""#,
        "The file with the seccomp profile, below `/var/lib/kubelet/seccomp` of each node. It has to be there before a gateway starts.",
    ),
    row(
        "sandbox.seccompInstaller",
        Shape::Switch,
        "false",
        "Whether a DaemonSet writes that file on every node where gateways may run. It runs as root with that directory of the node, so the namespace has to admit such pods.",
    ),
    row(
        "sandbox.appArmorProfile",
        Shape::Text,
        r#""""#,
        "On nodes with AppArmor: the name of a profile that is loaded there (deploy/apparmor is `mooring`), or `unconfined`. Empty: the runtime's own, which denies mounts.",
    ),
    row(
        "resources",
        Shape::Object,
        r#"{"requests": {"cpu": "250m", "memory": "256Mi"}}"#,
        "Processor time and memory of a gateway. With code, limit the memory to that of the gateway and of `settings.code.runs_at_once` runs, memory and disk.",
    ),
    row(
        "serviceAccount.create",
        Shape::Switch,
        "true",
        "Whether the chart makes one.",
    ),
    row(
        "serviceAccount.name",
        Shape::Text,
        r#""""#,
        "Empty: the name of the release, or `default` where none is made.",
    ),
    row(
        "serviceAccount.annotations",
        Shape::TextMap,
        "{}",
        "Its annotations.",
    ),
    row(
        "service.type",
        Shape::Word(&["ClusterIP", "NodePort", "LoadBalancer"]),
        r#""ClusterIP""#,
        "Its type.",
    ),
    row("service.port", Shape::Integer(1, 65535), "80", "Its port."),
    row(
        "service.annotations",
        Shape::TextMap,
        "{}",
        "Its annotations.",
    ),
    row(
        "ingress.enabled",
        Shape::Switch,
        "false",
        "Whether there is one.",
    ),
    row(
        "ingress.className",
        Shape::Text,
        r#""""#,
        "The class of its controller. Empty: the cluster's default.",
    ),
    row(
        "ingress.host",
        Shape::Text,
        r#""""#,
        "The host name of the gateways. It is added to `settings.listen.allowed_hosts`.",
    ),
    row(
        "ingress.tlsSecret",
        Shape::Text,
        r#""""#,
        "A Secret with the certificate of that name. Empty: no TLS.",
    ),
    row(
        "ingress.annotations",
        Shape::TextMap,
        "{}",
        "Its annotations. Turn off the buffering of replies and raise the time-outs: docs/kubernetes.md has those of ingress-nginx.",
    ),
    row(
        "autoscaling.enabled",
        Shape::Switch,
        "false",
        "Whether there is one.",
    ),
    row(
        "autoscaling.minReplicas",
        Shape::Integer(1, 1000),
        "2",
        "Fewest gateways.",
    ),
    row(
        "autoscaling.maxReplicas",
        Shape::Integer(1, 1000),
        "10",
        "Most gateways.",
    ),
    row(
        "autoscaling.targetCPUUtilizationPercentage",
        Shape::Integer(1, 100),
        "70",
        "The use of the requested processor time that it aims at.",
    ),
    row(
        "podDisruptionBudget.enabled",
        Shape::Switch,
        "true",
        "Whether there is one.",
    ),
    row(
        "podDisruptionBudget.maxUnavailable",
        Shape::Integer(1, 1000),
        "1",
        "Most gateways that are away at a time.",
    ),
    row(
        "networkPolicy.enabled",
        Shape::Switch,
        "false",
        "Whether there is one.",
    ),
    row(
        "networkPolicy.from",
        Shape::Objects,
        "[]",
        "Who may connect to the gateways, Prometheus included, as `from` of an ingress rule. Empty: everybody.",
    ),
    row(
        "monitoring.enabled",
        Shape::Switch,
        "false",
        "Whether there are any.",
    ),
    row(
        "monitoring.labels",
        Shape::TextMap,
        "{}",
        "Labels by which Prometheus finds the ServiceMonitor and the PrometheusRule, such as `release: prometheus`.",
    ),
    row(
        "monitoring.interval",
        Shape::Text,
        r#""30s""#,
        "How often the gateways are asked.",
    ),
    row(
        "monitoring.dashboardLabels",
        Shape::TextMap,
        r#"{"grafana_dashboard": "1"}"#,
        "Labels by which Grafana finds the dashboards.",
    ),
    row(
        "preStopSeconds",
        Shape::Integer(0, 120),
        "5",
        "How long a gateway keeps serving before it gets SIGTERM, so that the cluster's load balancers drop it first.",
    ),
    row(
        "ipFamily",
        Shape::Word(&["IPv4", "IPv6"]),
        r#""IPv4""#,
        "The addresses of the cluster's pods; of those with both, the first.",
    ),
    row(
        "podSecurityContext",
        Shape::Object,
        r#"{"runAsNonRoot": true, "runAsUser": 1001, "runAsGroup": 1001, "fsGroup": 1001, "fsGroupChangePolicy": "OnRootMismatch"}"#,
        "The security context of the gateways' pods. OpenShift chooses users itself: set `runAsUser`, `runAsGroup` and `fsGroup` to null there.",
    ),
    row(
        "containerSecurityContext",
        Shape::Object,
        r#"{"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}}"#,
        "That of their containers. The seccomp profile follows from `sandbox`.",
    ),
    row(
        "podAnnotations",
        Shape::TextMap,
        "{}",
        "Annotations of the gateways' pods.",
    ),
    row(
        "podLabels",
        Shape::TextMap,
        "{}",
        "Labels of the gateways' pods.",
    ),
    row(
        "nodeSelector",
        Shape::TextMap,
        "{}",
        "Nodes for gateways, Redis and the installer of the seccomp profile.",
    ),
    row(
        "affinity",
        Shape::Object,
        "{}",
        "The affinity of the gateways' pods.",
    ),
    row(
        "tolerations",
        Shape::Objects,
        "[]",
        "Tolerations of all pods.",
    ),
    row(
        "topologySpreadConstraints",
        Shape::Objects,
        "[]",
        "How the gateways spread over nodes and zones. Empty: as the cluster's scheduler does by default.",
    ),
    row(
        "priorityClassName",
        Shape::Text,
        r#""""#,
        "The priority of all pods.",
    ),
    row(
        "extraVolumes",
        Shape::Objects,
        "[]",
        "Volumes of the gateways' pods.",
    ),
    row(
        "extraVolumeMounts",
        Shape::Objects,
        "[]",
        "Where the gateways mount them.",
    ),
    row(
        "commonLabels",
        Shape::TextMap,
        "{}",
        "Labels of everything that the chart makes.",
    ),
    row(
        "nameOverride",
        Shape::Text,
        r#""""#,
        "The name of the chart in labels and names.",
    ),
    row(
        "fullnameOverride",
        Shape::Text,
        r#""""#,
        "What the names of all objects begin with.",
    ),
];

const PULL_POLICY: Shape = Shape::Word(&["Always", "IfNotPresent", "Never"]);
